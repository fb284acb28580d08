package peers

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/weir-stream/weir/internal/child"
	"github.com/weir-stream/weir/internal/javatest"
	"github.com/weir-stream/weir/internal/kafkatest"
)

// errNoJavac names what the machine lacks.
var errNoJavac = errors.New("javac not found in PATH: install a JDK, version 17 or later, for the peers")

//go:embed log4j2.properties
var log4j []byte

const log4jFile = "log4j2.properties"

// Job is what a run does.
type Job struct {
	Workload, In, Out string
	// Partitions is the number of partitions of the input.
	Partitions int
	// Interval is that of checkpoints or commits.
	Interval time.Duration
	// Dir is created for configuration, logs and state, and removed at the end.
	Dir    string
	Broker *kafkatest.Broker
}

// Engine is a peer whose software is on this machine.
type Engine struct {
	// Name is that in tables and CSV files.
	Name string
	// Version tells the software, for people.
	Version   string
	workloads []string
	software  *software
	start     func(context.Context, *software, Job) (*Run, error)
}

// Computes reports whether the engine has a workload.
func (e *Engine) Computes(workload string) bool { return slices.Contains(e.workloads, workload) }

// Start starts a job and returns when its processes exist.
func (e *Engine) Start(ctx context.Context, j Job) (*Run, error) {
	if err := os.MkdirAll(j.Dir, 0o755); err != nil {
		return nil, err
	}
	r, err := e.start(ctx, e.software, j)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("start %s: %w", e.Name, err), os.RemoveAll(j.Dir))
	}
	return r, nil
}

// Prepare fetches the software of peers into the user's cache directory when it is not there, and compiles their jobs into dir. Names are
// flink for the heap state backend, flink-rocksdb and kafka-streams.
func Prepare(ctx context.Context, dir string, names []string) ([]*Engine, error) {
	var engines []*Engine
	for _, name := range names {
		var e *Engine
		var err error
		switch name {
		case "flink", "flink-heap":
			e, err = flink(ctx, dir, "flink-heap", "hashmap")
		case "flink-rocksdb":
			e, err = flink(ctx, dir, name, "rocksdb")
		case "kafka-streams":
			e, err = kafkaStreams(ctx, dir)
		default:
			return nil, fmt.Errorf("there is no peer %q: there are flink, flink-rocksdb and kafka-streams", name)
		}
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", name, err)
		}
		engines = append(engines, e)
	}
	return engines, nil
}

// software is jars and compiled classes.
type software struct {
	java, classpath, log4j string // paths
}

// load fetches jars and compiles one file against them.
func load(ctx context.Context, dir, name string, pom []byte, file string, source []byte) (*software, error) {
	jars, err := javatest.Locate(ctx, "bench-"+name, pom, map[string][]byte{log4jFile: log4j}, nil)
	if err != nil {
		return nil, err
	}
	javac, err := exec.LookPath("javac")
	if err != nil {
		return nil, errNoJavac
	}
	classes := filepath.Join(dir, name+"-classes")
	if err := os.MkdirAll(classes, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(classes, file)
	if err := os.WriteFile(path, source, 0o644); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, javac, "-nowarn", "-proc:none", "-cp", jars.Classpath, "-d", classes, path)
	if text, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("compile %s: %w\n%s", file, err, text)
	}
	return &software{
		java: jars.Java, classpath: classes + string(os.PathListSeparator) + jars.Classpath, log4j: filepath.Join(jars.Dir, log4jFile),
	}, nil
}

// version returns that of an artifact in a project.
func version(pom []byte, artifact string) string {
	_, rest, _ := bytes.Cut(pom, []byte("<artifactId>"+artifact+"</artifactId>"))
	_, rest, _ = bytes.Cut(rest, []byte("<version>"))
	v, _, _ := bytes.Cut(rest, []byte("</version>"))
	return string(v)
}

// Run is a job that runs.
type Run struct {
	dir       string
	processes []*child.Process
	clean     func() error // what is left when the processes are gone; may be nil
}

// PIDs returns the engine's processes. A process that has ended is an error.
func (r *Run) PIDs() ([]int, error) {
	var pids []int
	for _, p := range r.processes {
		select {
		case <-p.Done():
			return nil, fmt.Errorf("%s has ended by itself", p.Name)
		default:
			pids = append(pids, p.PID())
		}
	}
	return pids, nil
}

// Stop ends the processes and removes what the job has left, but for its output.
func (r *Run) Stop() error {
	var errs []error
	for _, p := range r.processes {
		if err := p.End(syscall.SIGKILL); err != nil && !errors.Is(err, child.ErrNotRunning) {
			errs = append(errs, err)
		}
	}
	if r.clean != nil {
		errs = append(errs, r.clean())
	}
	return errors.Join(append(errs, os.RemoveAll(r.dir))...)
}

// launch starts a JVM.
func (r *Run) launch(s *software, name string, arguments ...string) error {
	p := &child.Process{Name: name, Log: filepath.Join(r.dir, strings.ReplaceAll(name, " ", "-")+".log"), StopTimeout: 20 * time.Second}
	common := []string{"-XX:+UseG1GC", "-Dlog4j.configurationFile=" + s.log4j, "-Dlog4j2.disableJmx=true", "-Djava.io.tmpdir=" + r.dir, "-cp", s.classpath}
	cmd := exec.Command(s.java, append(common, arguments...)...)
	cmd.Dir = r.dir
	if err := p.Start(cmd, os.O_TRUNC); err != nil {
		return err
	}
	r.processes = append(r.processes, p)
	return nil
}
