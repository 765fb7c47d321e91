"""The stages that run a bundle: numpy around onnxruntime sessions of one thread each."""
