                "(0 to 0); 512–1023 tokens of context: KL 0.11 (0.1 to 0.12); 1024–2047 tokens of context: KL 0.11 (0.11 to 0.12)"
