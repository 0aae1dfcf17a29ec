//! The harness itself.

use std::time::Duration;

use ragent_server_tests::cluster::{Cluster, SUPERUSER, Stop};

#[tokio::test]
async fn a_cluster_starts_restarts_and_leaves_nothing_behind() {
    let cluster = Cluster::builder().preload(false).setting("work_mem", "5MB").start().await;
    let folder = cluster.socket_folder().to_owned();
    let session = cluster.connect("postgres", SUPERUSER).await;
    assert_eq!(session.value("SHOW work_mem").await, "5MB");
    session.run("CREATE TABLE kept (id int); INSERT INTO kept VALUES (1)").await;
    let pid = session.pid;
    cluster.restart(Stop::Immediate).await;
    assert!(!ragent_server_tests::cluster::exists(pid), "a backend outlived an immediate shutdown");
    assert_eq!(cluster.psql("postgres", "SELECT count(*) FROM kept"), "1\n");
    cluster.stop(Stop::Fast, Duration::from_secs(10)).await;
    cluster.start().await;
    let session = cluster.connect("postgres", SUPERUSER).await;
    let error = session.error("SELECT 1/0", "22012").await;
    assert_eq!(error.message(), "division by zero");
    drop(cluster);
    assert!(!folder.exists(), "{folder:?} is still there");
}
