"""API routes compatible with LibreTranslate and OpenAI, and the native ones."""
