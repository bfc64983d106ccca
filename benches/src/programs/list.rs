//! Programs that people run, as shell scripts that say `ready` when they are at work.

/// A program with its load.
pub struct Program {
    pub name: &'static str,
    /// Names of its processes begin so; its load generator has another one.
    pub comm: &'static str,
    /// Commands without which it cannot run.
    pub needs: &'static [&'static str],
    /// Run by sh in an empty directory.
    pub script: &'static str,
}

/// All of them.
pub const PROGRAMS: &[Program] = &[
    Program {
        name: "python3, dictionary of a million strings",
        comm: "python3",
        needs: &["python3"],
        script: r#"exec python3 -u -c '
import random
numbers = {str(i): i for i in range(1000000)}
keys = list(numbers)
random.shuffle(keys)
print("ready")
while True:
    total = 0
    for key in keys:
        total += numbers[key]
'"#,
    },
    Program {
        name: "node, Map of a million strings",
        comm: "node",
        needs: &["node"],
        script: r#"exec node -e '
const map = new Map(), keys = [];
for (let i = 0; i < 1000000; i++) { keys.push("key" + i); map.set(keys[i], i); }
console.log("ready");
let at = 1, sum = 0;
for (;;) { at = (at * 1103515245 + 12345) & 0x7fffffff; sum += map.get(keys[at % 1000000]); }
'"#,
    },
    Program {
        name: "SQLite, join of two tables in memory",
        comm: "sqlite3",
        needs: &["sqlite3"],
        script: r#"{
echo 'create table a (id integer primary key, b integer, c text);'
echo 'create table b (k integer primary key, d text);'
echo 'with recursive n (i) as (select 1 union all select i + 1 from n where i < 500000)
      insert into a select i, (i * 7919) % 500000, hex(i) from n;'
echo 'insert into b select b, c from a group by b;'
echo "select 'ready';"
while :; do echo 'select sum(length(a.c) + length(b.d)) from a join b on b.k = a.b;'; done
} | sqlite3 :memory:"#,
    },
    Program {
        name: "PostgreSQL, pgbench -S at scale 10, two clients",
        comm: "postgres",
        needs: &["pgbench", "psql", "setpriv"],
        script: r#"chown postgres .
# Debian keeps the server out of sight.
PATH="$PATH:$(ls -d /usr/lib/postgresql/*/bin | tail -n 1)"
as() { setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }
as initdb -D data -A trust >/dev/null
as postgres -D data -k "$PWD" -c listen_addresses= -c shared_buffers=512MB >log 2>&1 &
until as psql -q -h "$PWD" -c 'select' postgres >/dev/null 2>&1; do sleep 0.2; done
as pgbench -q -i -s 10 -h "$PWD" postgres >/dev/null 2>&1
echo ready
as pgbench -S -n -c 2 -M prepared -T 600 -h "$PWD" postgres >/dev/null 2>&1"#,
    },
    Program {
        name: "Redis, GET of a million keys",
        comm: "redis-server",
        needs: &["redis-server", "redis-benchmark"],
        script: r#"redis-server --port 0 --unixsocket "$PWD/socket" --save '' >log 2>&1 &
until redis-benchmark -s "$PWD/socket" -t ping -n 1 -q >/dev/null 2>&1; do sleep 0.2; done
redis-benchmark -s "$PWD/socket" -t set -r 1000000 -n 1000000 -P 16 -q >/dev/null
echo ready
redis-benchmark -s "$PWD/socket" -t get -r 1000000 -n 1000000000 -P 16 -q >/dev/null"#,
    },
    Program {
        name: "JVM, HashMap of a million integers",
        comm: "java",
        needs: &["java", "javac"],
        script: r#"cat >Hash.java <<'CODE'
class Hash {
    public static void main(String[] words) {
        var map = new java.util.HashMap<Integer, Integer>();
        for (int i = 0; i < 1000000; i++) map.put(i * 7919, i);
        System.out.println("ready");
        long sum = 0;
        int at = 1;
        while (sum != -1) {
            at = (at * 1103515245 + 12345) & 0x7fffffff;
            sum += map.get((at % 1000000) * 7919);
        }
    }
}
CODE
javac Hash.java
exec java -Xmx1g -cp . Hash"#,
    },
    Program {
        name: "perl, hash of a million strings",
        comm: "perl",
        needs: &["perl"],
        script: r#"exec perl -e '
$| = 1;
$hash{"key$_"} = $_ for 1 .. 1000000;
@keys = sort { $hash{$a} * 7919 % 1000003 <=> $hash{$b} * 7919 % 1000003 } keys %hash;
print "ready\n";
for (;;) { $sum += $hash{$_} for @keys }
'"#,
    },
];
