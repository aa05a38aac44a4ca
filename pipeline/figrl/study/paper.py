"""Tables of the paper as data, for comparison with what figrl measures.

The paper is FI-GRL (ICDM 2018). Its graph "youtube" has the size of another graph, so nothing is
measured on it; it is here only in the table of running times.
"""

from __future__ import annotations

CLUSTERS = {
    "karate": 2,
    "dolphins": 3,
    "us-football": 11,
    "polblogs": 7,
    "ca-HepTh": 995,
    "ca-CondMat": 2456,
    "email-Enron": 3888,
    "com-dblp": 25633,
}
"""Clusters of each graph, as found by the community detection RankCom."""

METHODS = ("FI-GRL", "node2vec", "GraphSAGE", "LINE", "DeepWalk")
"""Columns of the table of clusterings."""

_CLUSTERING = """
karate       k-means        0.410  0.335  0.381  0.403  0.396   0.474  0.335  0.322  0.182  0.350
karate       agglomerative  0.410  0.335  0.401  0.239  0.430   0.474  0.205  0.339  0.232  0.311
dolphins     k-means        0.489  0.460  0.370  0.187  0.401   0.235  0.196  0.158 -0.166  0.187
dolphins     agglomerative  0.462  0.458  0.355  0.271  0.393   0.215  0.132  0.121 -0.189  0.189
us-football  k-means        0.607  0.605  0.485  0.562  0.464   0.323  0.304  0.124  0.311  0.039
us-football  agglomerative  0.611  0.589  0.470  0.492  0.464   0.315  0.279  0.116  0.307  0.039
ca-HepTh     k-means        0.611  0.597  0.399  0.010  0.424   0.393  0.379  0.287 -0.948  0.261
ca-HepTh     agglomerative  0.623  0.606  0.423  0.050  0.453   0.427  0.406  0.327 -0.949  0.338
ca-CondMat   k-means        0.527  0.515  0.409  0.000  0.357   0.371  0.330  0.206 -0.984  0.197
ca-CondMat   agglomerative  0.544  0.520  0.427  0.000  0.370   0.392  0.388  0.213 -0.994  0.249
email-Enron  k-means        0.322  0.213  0.231  0.000  0.178   0.175  0.080  0.067 -0.985  0.049
email-Enron  agglomerative  0.327  0.218  0.211  0.000  0.207   0.187  0.180  0.058 -0.996  0.108
polblogs     k-means        0.427  0.357  0.278  0.200  0.084   0.130 -0.066 -0.106 -0.569 -0.187
polblogs     agglomerative  0.425  0.376  0.291  0.266  0.065   0.131 -0.096 -0.123 -0.509 -0.176
"""

CLUSTERING = {
    (graph, method): (tuple(map(float, values[:5])), tuple(map(float, values[5:])))
    for graph, method, *values in map(str.split, _CLUSTERING.strip().splitlines())
}
"""By graph and clustering method: modularity and permanence, in the order of `METHODS`."""

HOLES = {"karate": 3, "com-dblp": 42}
"""Number of structural holes chosen in each graph."""

KARATE_HOLES = {
    "RDS": "3 14 20",
    "HAM": "3 20 9",
    "constraint": "1 34 3",
    "PageRank": "34 1 33",
    "betweenness": "1 34 33",
    "HIS": "32 9 14",
    "AP_BICC": "1 3 34",
}
"""Structural holes of karate that each method chooses; the paper numbers nodes from 1."""

INFLUENCE = {
    key: dict(zip(KARATE_HOLES, values, strict=True))
    for key, values in {
        ("karate", "lt"): (0.595, 0.343, 0.295, 0.159, 0.159, 0.132, 0.295),
        ("karate", "ic"): (0.003, 0.002, 0.002, 0.001, 0.001, 0.001, 0.002),
        ("com-dblp", "lt"): (6.873, 5.384, 0.404, 0.357, 0.958, 0.718, 0.55),
        ("com-dblp", "ic"): (5.251, 3.578, 0.229, 0.19, 0.821, 0.304, 0.495),
    }.items()
}
"""By graph and influence model: SHII of the holes that each method chooses."""

SKETCH_SIZES = (100, 200, 500, 1000)

_SECONDS = """
karate         0.005   0.006   0.019    0.040      0.807     4.123     18.348
dolphins       0.007   0.009   0.015    0.035      3.110    10.876     43.791
us-football    0.042   0.051   0.037    0.047      1.442    10.92      37.252
polblogs       0.032   0.064   0.081    0.159     33.34    130        363
ca-HepTh       0.181   0.388   0.976    2.576     74.83    959       2960
ca-CondMat     0.424   0.913   2.804    7.262    177      2589      13860
email-Enron    0.672   1.508   6.776   11.48    2897      4680      16740
youtube        7.14   15.85   45.73   101        inf       inf        inf
com-dblp       8.33   18.09   57.30   134        inf       inf        inf
"""

TIMED = (*SKETCH_SIZES, "node2vec", "DeepWalk", "GraphSAGE")
"""Rows of the paper's table of running times: FI-GRL by sketch size, and rivals. LINE has none."""

SECONDS: dict[str, dict[int | str, float]] = {
    graph: dict(zip(TIMED, map(float, values), strict=True))
    for graph, *values in map(str.split, _SECONDS.strip().splitlines())
}
"""By graph: seconds of each row of `TIMED`; infinite is more than ten hours."""
