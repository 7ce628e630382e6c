"""glayers in other libraries; nothing inside imports these."""
