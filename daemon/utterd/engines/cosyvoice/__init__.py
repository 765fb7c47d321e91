"""CosyVoice-300M-SFT on onnxruntime and numpy: five languages at 22.05 kHz."""
