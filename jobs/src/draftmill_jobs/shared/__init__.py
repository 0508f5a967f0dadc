"""What plan, generate and finish share: config, files, accounts, last words."""
