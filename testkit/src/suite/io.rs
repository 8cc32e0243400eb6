//! Requests: they come back once, as they went, with the result that the device gave.

use std::sync::{Arc, Mutex};

use frames::FrameId;
use policy::units::{Bytes, Nanos};

use super::{Harness, Reply, Script, World, finish, start, take_lock, until};
use env::{Interrupt, IoDone, IoError, IoOp, IoRequest, spawn};

/// A task that waits for a request is woken by its completion.
pub fn a_completion_wakes_the_waiter<H: Harness>(harness: &H) {
    let (mut world, device) = start(harness, 2);
    let id = world.device();
    world.run(move |task| {
        let reply = Arc::new(Reply::default());
        task.env().submit(reply.request(id, IoOp::Read));
        assert!(
            !reply.is_there(),
            "a request that the device holds came back"
        );
        let completer = {
            let device = Arc::clone(&device);
            spawn(task.env(), "completer", move |task| {
                until(task, &"the request", |_| device.held() == 1);
                assert!(device.complete_next(Ok(())), "the device holds the request");
            })
        };
        let answer = reply.wait(task).expect("a completed request ends the wait");
        assert_eq!(answer.result, Ok(()), "result of a request that went well");
        completer.join(task).expect("the completer ends");
        // The same from a timer: nobody but the completion can wake this task.
        device.set_script(Script::After(Nanos::millis(3), Ok(())));
        let reply = Arc::new(Reply::default());
        let began = task.now();
        task.env().submit(reply.request(id, IoOp::Flush));
        let answer = reply.wait(task).expect("a timer completes the request");
        assert_eq!(
            answer.result,
            Ok(()),
            "result of a request completed by a timer"
        );
        assert!(
            task.now().since(began) >= Nanos::millis(3),
            "the timer ran early"
        );
    });
    finish(&mut world);
}

/// Each error of the device is the error that the submitter sees.
pub fn errors_arrive_as_they_are<H: Harness>(harness: &H) {
    let errors = [
        IoError::Failed { errno: 5 },
        IoError::Failed { errno: 121 },
        IoError::NoSpace,
        IoError::OverQuota,
        IoError::Lost,
        IoError::Changed,
        IoError::Torn { done: 4096 },
        IoError::Cancelled,
    ];
    let (mut world, device) = start(harness, 2);
    let id = world.device();
    world.run(move |task| {
        for error in errors {
            let after = Script::After(Nanos::micros(100), Err(error));
            for script in [Script::Inside(Err(error)), after] {
                device.set_script(script);
                let reply = Arc::new(Reply::default());
                task.env().submit(reply.request(id, IoOp::Write));
                let answer = reply.wait(task).expect("a failed request comes back");
                assert_eq!(
                    answer.result,
                    Err(error),
                    "result of a request failed by {script:?}"
                );
            }
        }
    });
    finish(&mut world);
}

/// A request may be complete before `submit` returns.
pub fn a_completion_may_come_inside_submit<H: Harness>(harness: &H) {
    let (mut world, device) = start(harness, 2);
    let id = world.device();
    world.run(move |task| {
        device.set_script(Script::Inside(Ok(())));
        for _ in 0..100 {
            let reply = Arc::new(Reply::default());
            task.env().submit(reply.request(id, IoOp::Read));
            assert!(
                reply.is_there(),
                "completed inside submit, and not there afterwards"
            );
            let answer = reply
                .wait(task)
                .expect("a request that is there needs no wait");
            assert_eq!(
                answer.result,
                Ok(()),
                "result of a request completed inside submit"
            );
        }
    });
    finish(&mut world);
}

/// Many requests under way at once, completed in another order than they came.
pub fn many_requests_in_flight_all_come_back<H: Harness>(harness: &H) {
    const REQUESTS: u64 = if cfg!(miri) { 12 } else { 200 };
    let (mut world, device) = start(harness, 2);
    let id = world.device();
    world.run(move |task| {
        let submit = |task: &super::Task<'_>, number: u64| {
            let reply = Arc::new(Reply::default());
            let mut request = reply.request(id, IoOp::Read);
            request.cookie = [number, !number];
            task.env().submit(request);
            reply
        };
        let replies: Vec<_> = (0..REQUESTS).map(|number| submit(task, number)).collect();
        until(task, &"all requests at the device", |_| {
            device.held() as u64 == REQUESTS
        });
        let completer = {
            let device = Arc::clone(&device);
            spawn(task.env(), "completer", move |_| {
                while device.complete_last(Ok(())) {}
            })
        };
        for (number, reply) in (0..).zip(&replies) {
            let answer = reply.wait(task).expect("a request among many comes back");
            assert_eq!(
                answer.request.cookie,
                [number, !number],
                "another's request came back"
            );
        }
        completer.join(task).expect("the completer ends");
        let replies: Vec<_> = (0..REQUESTS)
            .map(|number| {
                let delay = Nanos::micros((number * 37) % 500);
                device.set_script(Script::After(delay, Ok(())));
                submit(task, number)
            })
            .collect();
        for reply in replies {
            let answer = reply
                .wait(task)
                .expect("a timed request among many comes back");
            assert_eq!(
                answer.result,
                Ok(()),
                "result of a timed request among many"
            );
        }
    });
    finish(&mut world);
}

/// The submitter's fields on the request are there when it comes back, and so is the time when it
/// went.
pub fn a_request_comes_back_as_it_went<H: Harness>(harness: &H) {
    let (mut world, device) = start(harness, 2);
    let id = world.device();
    world.run(move |task| {
        device.set_script(Script::After(Nanos::millis(1), Ok(())));
        let reply = Arc::new(Reply::default());
        let mut request = reply.request(id, IoOp::Write);
        request.offset = Bytes(40_960);
        request.cookie = [11, 12];
        let before = task.now();
        task.env().submit(request);
        let back = reply.wait(task).expect("the request comes back").request;
        assert_eq!(back.device, id, "device of a request that came back");
        assert_eq!(back.op, IoOp::Write, "op of a request that came back");
        assert_eq!(
            back.offset,
            Bytes(40_960),
            "offset of a request that came back"
        );
        assert_eq!(
            back.frames,
            Vec::<FrameId>::new(),
            "frames of a request that came back"
        );
        assert_eq!(back.cookie, [11, 12], "cookie of a request that came back");
        assert!(
            back.submitted >= before,
            "submit stamps the time on the request"
        );
        assert!(
            back.submitted <= task.now(),
            "a request was submitted in the future"
        );
    });
    finish(&mut world);
}

/// Passes a completion on and takes note of the order.
struct Layer {
    log: Arc<Mutex<Vec<u64>>>,
}

impl IoDone for Layer {
    fn io_done(&self, context: &Interrupt, request: Box<IoRequest>, result: Result<(), IoError>) {
        take_lock(&self.log).push(request.note());
        request.complete(context, result);
    }
}

/// The handler put on last sees the completion first, each with the note it was put on with.
pub fn handlers_run_in_reverse_order_with_their_notes<H: Harness>(harness: &H) {
    let (mut world, device) = start(harness, 2);
    let id = world.device();
    world.run(move |task| {
        device.set_script(Script::After(Nanos::micros(10), Ok(())));
        let log = Arc::new(Mutex::new(Vec::new()));
        let layer = Arc::new(Layer {
            log: Arc::clone(&log),
        });
        let reply = Arc::new(Reply::default());
        let mut request = reply.request(id, IoOp::Read);
        for note in [1, 2, 3] {
            let handler: Arc<Layer> = Arc::clone(&layer);
            request.on_done_noted(handler, note);
        }
        task.env().submit(request);
        reply.wait(task).expect("the request comes back");
        assert_eq!(
            *take_lock(&log),
            [3, 2, 1],
            "notes in the order of the handlers"
        );
    });
    finish(&mut world);
}
