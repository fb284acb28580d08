package javatest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Errors that name what the machine lacks.
var (
	ErrNoJava  = errors.New("java not found in PATH: install a Java runtime, version 17 or later")
	ErrNoMaven = errors.New("mvn not found in PATH: install Maven, which fetches the jars of servers for tests once")
)

const jarsDir = "jars"

// Jars is a server's software on this machine.
type Jars struct {
	// Dir belongs to this software and keeps from run to run; its files are in it.
	Dir string
	// Java is the path of the java command.
	Java string
	// Classpath has all jars, in the same order each time.
	Classpath string
}

// Locate returns the software that a Maven project names, fetching it when this is the first time. The files are put beside the jars.
// prepare, which may be nil, is called while no other process does the same.
func Locate(ctx context.Context, name string, pom []byte, files map[string][]byte, prepare func(context.Context, *Jars) error) (*Jars, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, ErrNoJava
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the user's cache directory: %w", err)
	}
	all := bytes.Clone(pom)
	for _, f := range slices.Sorted(maps.Keys(files)) {
		all = append(all, files[f]...)
	}
	sum := sha256.Sum256(all)
	j := &Jars{Dir: filepath.Join(cache, "weir", fmt.Sprintf("%s-%x", name, sum[:6])), Java: java}
	if err := os.MkdirAll(j.Dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lockFile(ctx, filepath.Join(j.Dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", j.Dir, err)
	}
	defer unlock()
	if err := j.fetch(ctx, pom, files); err != nil {
		return nil, err
	}
	jars, err := filepath.Glob(filepath.Join(j.Dir, jarsDir, "*.jar"))
	if err != nil {
		return nil, err
	}
	// A class-data archive is bound to the order of the class path.
	slices.Sort(jars)
	j.Classpath = strings.Join(jars, string(os.PathListSeparator))
	if prepare == nil {
		return j, nil
	}
	return j, prepare(ctx, j)
}

func (j *Jars) fetch(ctx context.Context, pom []byte, files map[string][]byte) error {
	jars := filepath.Join(j.Dir, jarsDir)
	if _, err := os.Stat(jars); err == nil {
		return nil
	}
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return ErrNoMaven
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(j.Dir, name), content, 0o644); err != nil {
			return err
		}
	}
	pomFile := filepath.Join(j.Dir, "pom.xml")
	if err := os.WriteFile(pomFile, pom, 0o644); err != nil {
		return err
	}
	partial := jars + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", pomFile, "dependency:copy-dependencies", "-DoutputDirectory="+partial)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch jars with Maven: %w\n%s", err, Tail(out, 20))
	}
	return os.Rename(partial, jars)
}

// Tail returns the last lines of a program's output.
func Tail(out []byte, lines int) string {
	all := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
