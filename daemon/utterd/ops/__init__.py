"""What an operator needs: logs, processor limits."""
