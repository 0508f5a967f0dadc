"""What the steps share: config, files, locks, accounts, last words."""
