"""An embedding to what people use it for."""
