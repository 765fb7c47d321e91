"""From the official directory to a bundle, without torch. Needs the extra `convert`.

The daemon never imports this package.
"""
