"""The routes that programs ask: LibreTranslate's, OpenAI's and our own."""
