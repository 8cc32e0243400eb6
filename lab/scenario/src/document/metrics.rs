//! Names of the metrics, for checks: `experiment` has their values, and a test that these are all.

use std::sync::LazyLock;

/// The metric that has samples, of which the mean over repetitions is one of all together.
pub const SAMPLED: &str = "lat_amean_ms";

/// All metrics, in the order of their list.
pub static METRICS: LazyLock<Vec<&str>> = LazyLock::new(|| NAMES.split_whitespace().collect());

const NAMES: &str = "\
    real mbps system system-tasks system-flusher user pauses pause_max_ms pause_min_ms \
    pause_steady_max_ms pause_mean_ms pause_cv pause_zero_share write_max_ms light_p99_ms \
    light_max_ms light_rate read_max_ms ops_s op_p99_ms log_wait_s passed_over jain jain_end \
    dirty_share level_end newcomer_free_s newcomer_share written_mb settled_mibps device_mibps \
    device_busy completion_max_mib writer_cv pause_p50_ms pause_p99_ms pause_rate pause_shortest_ms \
    pause_longest_ms jain_early jain_settled write_p50_ms write_p99_ms write_bound light_p50_ms \
    level_mib level_peak stall_s stall_named hang_kept paused_s lat_amean_ms lat_stddev_ms \
    lat_p50_ms lat_max90_ms lat_max99_ms lat_max_ms lat_samples lat_system_ms bystander_p99_ms \
    bystander_max_ms hog_gib read_mbps asleep flusher_throttled_s elapsed pgscan_direct \
    pgscan_kswapd pgsteal_direct pgsteal_kswapd kswapd_efficiency kswapd_velocity direct_efficiency \
    direct_velocity direct_percent reclaim_writes anon_writes swap_reads immediate allocstalls oom \
    cw_timeout wic_zero writeback_timeout writeback_zero noprogress_timeout noprogress_zero \
    noprogress_echo noprogress_echo_rise noprogress_echo_ms isolated_zero kswapd_timeout \
    kswapd_other whole_ticks throttle_max_ms resident_peak cpu_tasks download_s copy_s delete_s \
    files_min files_mean files_stddev files_max cached_share page_ins page_outs scanned_per_freed \
    kswapd_percent busy_share write_kib read_kib seeks zone_reclaim_failed zone_reclaim_success \
    numa_hit numa_miss numa_foreign numa_local numa_other remote_touches remote_copies zlc_skipped \
    zlc_hidden slabs_scanned direct_inode_steals kswapd_inode_steals overhead_min overhead_mean \
    overhead_stddev overhead_max slab_share slab_share_full dirty_of_cache full_s full_files \
    files_before files_last files_worst write_iops_before write_iops write_iops_rise inode_steals \
    boosted_share over_reclaim extfrag_rate extfrag_yield misses_per_visit visit_misses visit_s \
    visit_first_s visit_last_s alloc_elapsed_s alloc_elapsed_sd alloc_median_s alloc_longest_s \
    alloc_system_s alloc_system_sd alloc_user_s thp_fault_alloc thp_fault_fallback thp_active \
    thp_success thp_at_start dirty_at_start_mib immediate_share file_writes kswapd_skipped_wait \
    rescued thp_splits compact_stalls compact_success compact_failures compact_moved \
    compact_move_failed test_cpu_s settle_s source_mbps stick_mbps reclaimed_gib stalls_mean_s";
