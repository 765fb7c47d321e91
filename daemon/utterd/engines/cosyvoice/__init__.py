"""CosyVoice-300M-SFT on onnxruntime and numpy."""
