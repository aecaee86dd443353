"""RTLLM v1.1 and v2.0: a design's description in, a module out, judged by the design's own bench.

In: upstream's folder; v2.0 has its designs in folders by category.
"""
