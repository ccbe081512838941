"""Where event catalogues are found: those shipped here and those that an operator adds.

Every folder ``dataapi/plugins`` on ``sys.path`` that is no package itself is part of this one.
"""

from twisted.plugin import pluginPackagePaths

__path__.extend(pluginPackagePaths(__name__))
__all__: list[str] = []
