"""CosyVoice-300M-SFT: Chinese, English, Japanese, Cantonese and Korean at 22.05 kHz."""
