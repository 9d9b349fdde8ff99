"""Ingestion: files of lists to records by split."""
