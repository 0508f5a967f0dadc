"""Sources of prompts: files, folders and Hugging Face datasets, as rows in a fixed order."""
