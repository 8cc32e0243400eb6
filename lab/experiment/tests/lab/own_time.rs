//! The time of a task is told whole: what it waited for by cause, and its CPU time.

use experiment::trial::Trial;

/// The part of a task's life that is neither a wait nor CPU time is less than this.
const UNEXPLAINED: f64 = 0.02;

#[test]
fn waits_and_cpu_time_are_all_of_a_writers_time() {
    for (experiment, rows) in [("dd", vec!["ext4", "xfs"]), ("two-writers", vec![])] {
        let sets = ["run.scale=0.015625", "run.replicas=1"];
        let trial = Trial::load(
            experiment,
            &["tidegate", "linux-6.12", "linux-2.6.36"],
            &sets,
        );
        let trial = trial.unwrap();
        let trial = if rows.is_empty() {
            trial
        } else {
            trial.rows(&rows)
        };
        let outcomes = trial.run(|_| {}).unwrap();
        assert!(!outcomes.is_empty());
        for outcome in outcomes {
            let mut judged = 0;
            for job in &outcome.jobs {
                let task = outcome
                    .tasks
                    .iter()
                    .find(|task| task.name == job.name)
                    .unwrap();
                let waits: f64 = task.waits.iter().map(|(_, seconds)| seconds).sum();
                let told = waits + task.user_s + task.system_s;
                // From the start of the run on: until its turn comes, a task waits.
                let life = job.ended_s;
                let unexplained = (life - told).abs() / life;
                assert!(
                    unexplained < UNEXPLAINED,
                    "{}/{} {}: {life} s, of which {told} s are told: {:?}",
                    outcome.case,
                    outcome.policy,
                    job.name,
                    task.waits
                );
                judged += 1;
            }
            assert!(judged > 0);
        }
    }
}
