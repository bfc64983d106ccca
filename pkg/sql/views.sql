-- Views of the tables that numatop-ng export --format parquet -o fleet/ writes, with the quotients of their sums. For DuckDB: start it
-- beside fleet/, and read this file (.read views.sql). Other engines have another name for read_parquet; the rest is plain SQL.
--
-- Tables have sums of intervals, so that a quotient of two sums is right over any time and any set of hosts; a mean of percentages is
-- not. null is what could not be measured: sums leave it out, and nullif keeps a quotient of nothing out.

create or replace view tasks as select * from read_parquet('fleet/tasks/**/*.parquet', hive_partitioning = true);
create or replace view task_nodes as select * from read_parquet('fleet/task_nodes/**/*.parquet', hive_partitioning = true);
create or replace view containers as select * from read_parquet('fleet/containers/**/*.parquet', hive_partitioning = true);
create or replace view container_nodes as select * from read_parquet('fleet/container_nodes/**/*.parquet', hive_partitioning = true);
create or replace view nodes as select * from read_parquet('fleet/nodes/**/*.parquet', hive_partitioning = true);
create or replace view matrix as select * from read_parquet('fleet/matrix/**/*.parquet', hive_partitioning = true);
create or replace view hosts as select * from read_parquet('fleet/host/**/*.parquet', hive_partitioning = true);
create or replace view lost as select * from read_parquet('fleet/lost/**/*.parquet', hive_partitioning = true);
create or replace view findings as select * from read_parquet('fleet/findings/**/*.parquet', hive_partitioning = true);
create or replace view hot as select * from read_parquet('fleet/hot/**/*.parquet', hive_partitioning = true);

-- Programs of each host by the hour.
create or replace view programs_by_hour as
select
    host,
    date_trunc('hour', time) as hour,
    namespace,
    pod,
    container,
    comm,
    sum(cpu_ns) / 1e9 as cpu_s,
    sum(remote_ns) / 1e9 as remote_s,
    100.0 * sum(remote_ns) / nullif(sum(located_ns), 0) as remote_pct,
    sum(remote_ns - remote_best_ns) / 1e9 as avoidable_s,
    sum(instructions) / nullif(sum(cycles), 0) as ipc,
    sum(wait_ns) / nullif(sum(dispatches), 0) / 1e3 as wait_us
from tasks
group by all;

-- Nodes of each host by the minute; free memory is the least.
create or replace view nodes_by_minute as
select
    host,
    date_trunc('minute', time) as minute,
    node,
    sum(busy_ns) / sum(interval_ns) as busy_cpus,
    100.0 * sum(remote_ns) / nullif(sum(located_ns), 0) as remote_pct,
    sum(instructions) / nullif(sum(cycles), 0) as ipc,
    min(mem_free_bytes) as least_free_bytes,
    sum(numa_miss) as numa_miss
from nodes
group by all;

-- Time of each host that is in no file: gaps, and what was lost.
create or replace view missing_by_host as
select host, cause, sum(gap_ns) / 1e9 as gap_s, sum(count) as lost
from lost
group by all;
