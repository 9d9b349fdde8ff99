"""Ingestion of files of lists to records by split."""
