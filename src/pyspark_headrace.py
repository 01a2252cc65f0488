"""Spark finds the data source `headrace` by this module's name. It must never raise: one module that does hides all."""

try:
    from headrace.spark.data_source import HeadraceDataSource as DefaultSource
except Exception:  # of whatever kind: an older PySpark lacks names, a broken installation does anything
    pass
else:
    __all__ = ["DefaultSource"]
