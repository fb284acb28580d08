package main

import (
	"sync"
	"time"
)

// observer sees when messages reach the TaskManagers.
type observer struct {
	idle bool

	mu          sync.Mutex
	admitted    map[string]bool // TaskManagers
	checkpoints map[named]*times
	last        map[string]uint64 // checkpoint that every worker of a job knows to be complete
	workers     int               // of each job
	news        chan struct{}
}

// named is one checkpoint of a job.
type named struct {
	job string
	id  uint64
}

type times struct {
	triggered, completed time.Time
	told                 int
}

func newObserver(workers int, idle bool) *observer {
	return &observer{
		idle: idle, workers: workers, admitted: map[string]bool{}, checkpoints: map[named]*times{}, last: map[string]uint64{}, news: make(chan struct{}, 1),
	}
}

// registered notes that a leader has taken a TaskManager on.
func (o *observer) registered(taskManager string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.admitted[taskManager] = true
}

// forget makes reached count from now on.
func (o *observer) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	clear(o.admitted)
}

func (o *observer) triggered(job string, id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.checkpoints[named{job, id}] == nil {
		o.checkpoints[named{job, id}] = &times{triggered: time.Now()}
	}
}

func (o *observer) completed(job string, id uint64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	t := o.checkpoints[named{job, id}]
	if t == nil {
		return
	}
	if t.told++; t.told == o.workers {
		t.completed = time.Now()
		o.last[job] = max(o.last[job], id)
		select {
		case o.news <- struct{}{}:
		default:
		}
	}
}

// reached counts the TaskManagers that a leader has taken on.
func (o *observer) reached() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return len(o.admitted)
}

func (o *observer) newest(job string) uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.last[job]
}

// took returns how long the checkpoints after one took, from the first worker that was triggered until the last one knew of the completion.
func (o *observer) took(job string, after uint64) (all []time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for of, t := range o.checkpoints {
		if of.job == job && of.id > after && !t.completed.IsZero() {
			all = append(all, t.completed.Sub(t.triggered))
		}
	}
	return all
}
