"""The Markdown file format: front matter, documents, transcripts, Obsidian syntax."""
