"""The article's etcd lock as it is printed: the revision is read from where python-etcd3 has none.

So an acquire that succeeded fails after the lock was taken, and the key stays
until its lease ends.
"""

from typing import Any

from etcd_lock import ArticleEtcd
from lockworker import serve


class AsPrinted(ArticleEtcd):
    @staticmethod
    def reading(responses: Any) -> int:
        return int(responses[0].header.revision)


if __name__ == "__main__":
    serve(AsPrinted)
