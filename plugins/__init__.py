"""The plugins: shipped event catalogues, and those that operators add.

Every folder ``dataapi/plugins`` on ``sys.path`` without an ``__init__.py`` is part of this package.
"""

from twisted.plugin import pluginPackagePaths

__path__.extend(pluginPackagePaths(__name__))
__all__: list[str] = []
