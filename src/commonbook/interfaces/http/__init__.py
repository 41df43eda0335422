"""The book over HTTP: every verb under `/v1`, with keys, an OpenAPI document and problem details."""
