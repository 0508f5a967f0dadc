"""From a source of prompts to rows with stable identities."""
