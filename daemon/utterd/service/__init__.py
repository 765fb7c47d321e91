"""utterd as a service of systemd."""
