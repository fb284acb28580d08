package faultpoint

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"
)

// The environment variables of a program that has points.
const (
	EnvPoints = "WEIR_FAULTPOINT"
	EnvDir    = "WEIR_FAULTPOINT_DIR"
)

// Fired is the suffix that an armed file gets when its action is taken.
const Fired = ".fired"

// ErrInjected is what Err returns where an error was asked for.
var ErrInjected = errors.New("injected by a fault point")

// action is what to do at a point.
type action struct {
	verb  string // kill, stop, hang, error or delay
	delay time.Duration
	nth   int // from 1
	facts map[string]string
}

func parseAction(text string) (a action, err error) {
	a.nth = 1
	head, conditions, _ := strings.Cut(strings.TrimSpace(text), ",")
	head, nth, counted := strings.Cut(head, "@")
	if counted {
		if a.nth, err = strconv.Atoi(nth); err != nil || a.nth < 1 {
			return a, fmt.Errorf("%q: after @ comes a number from 1", text)
		}
	}
	verb, duration, _ := strings.Cut(head, ":")
	switch a.verb = verb; verb {
	case "kill", "stop", "hang", "error":
		if duration != "" {
			return a, fmt.Errorf("%q: only a delay has a duration", text)
		}
	case "delay":
		if a.delay, err = time.ParseDuration(duration); err != nil {
			return a, fmt.Errorf("%q: %w", text, err)
		}
	default:
		return a, fmt.Errorf("%q: the action is none of kill, stop, hang, error, delay:DUR", text)
	}
	for _, c := range strings.Split(conditions, ",") {
		if c == "" {
			continue
		}
		fact, value, ok := strings.Cut(c, "=")
		if !ok {
			return a, fmt.Errorf("%q: a condition is fact=value", text)
		}
		if a.facts == nil {
			a.facts = make(map[string]string)
		}
		a.facts[fact] = value
	}
	return a, nil
}

// effects are what actions do to the process.
type effects struct {
	kill, stop, hang func()
	delay            func(time.Duration)
}

// arming is an armed point and how often it was passed since.
type arming struct {
	action
	text   string
	when   time.Time // of the file; zero for the environment's
	passes int
	done   bool
}

type controller struct {
	dir string
	do  effects

	mu     sync.Mutex
	facts  map[string]string
	always map[Point]*arming // by the environment
	filed  map[Point]*arming // by files
}

func newController(points, dir string, do effects) (*controller, error) {
	c := &controller{
		dir: dir, do: do, facts: make(map[string]string), always: make(map[Point]*arming), filed: make(map[Point]*arming),
	}
	for _, entry := range strings.Split(points, ";") {
		if entry == "" {
			continue
		}
		name, text, ok := strings.Cut(entry, "=")
		if !ok {
			return nil, fmt.Errorf("%s: %q is not point=action", EnvPoints, entry)
		}
		a, err := parseAction(text)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", EnvPoints, err)
		}
		c.always[Point(name)] = &arming{action: a, text: text}
	}
	return c, nil
}

func (c *controller) is(fact, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.facts[fact] = value
}

// reach acts on a point that the process is at.
func (c *controller) reach(p Point) error {
	c.mu.Lock()
	now := []*arming{c.always[p], c.file(p)}
	c.mu.Unlock()
	var err error
	for _, a := range now {
		if a == nil || !c.due(p, a) {
			continue
		}
		fmt.Fprintf(os.Stderr, "fault point %s: %s\n", p, a.text)
		switch a.verb {
		case "kill":
			c.do.kill()
		case "stop":
			c.do.stop()
		case "hang":
			c.do.hang()
		case "delay":
			c.do.delay(a.delay)
		case "error":
			err = ErrInjected
		}
	}
	return err
}

// due counts a pass, and claims the action when it is to be taken now.
func (c *controller) due(p Point, a *arming) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for fact, value := range a.facts {
		if c.facts[fact] != value {
			return false
		}
	}
	a.passes++
	if a.verb == "delay" {
		return a.passes >= a.nth
	}
	if a.done || a.passes < a.nth {
		return false
	}
	a.done = true
	if a.when.IsZero() {
		return true
	}
	return c.claim(filepath.Join(c.dir, string(p))) == nil
}

// claim decides between several processes that share a directory, and tells which of them it is.
func (c *controller) claim(path string) error {
	pid := strconv.Itoa(os.Getpid())
	mine := path + "." + pid
	if err := os.Rename(path, mine); err != nil {
		return err
	}
	return errors.Join(os.WriteFile(mine, []byte(pid), 0o600), os.Rename(mine, path+Fired))
}

// file returns what a file says about a point now, nil without one.
func (c *controller) file(p Point) *arming {
	if c.dir == "" {
		return nil
	}
	path := filepath.Join(c.dir, string(p))
	info, err := os.Stat(path)
	if err != nil {
		return nil
	}
	if a := c.filed[p]; a != nil && a.when.Equal(info.ModTime()) {
		return a
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	a, err := parseAction(string(text))
	if err != nil {
		fmt.Fprintf(os.Stderr, "fault point %s: %v\n", p, err)
		return nil
	}
	c.filed[p] = &arming{action: a, text: strings.TrimSpace(string(text)), when: info.ModTime()}
	return c.filed[p]
}
