"""The look at model, prompts and storage before any server is started."""
