"""Event catalogues and other plugins, shipped or installed by operators.

Every directory ``dataapi/plugins`` on ``sys.path`` that has no ``__init__.py`` is part of this package.
"""

from twisted.plugin import pluginPackagePaths

__path__.extend(pluginPackagePaths(__name__))
__all__: list[str] = []
