package kafkatest

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

//go:embed pom.xml
var pom []byte

//go:embed log4j2.properties
var log4j []byte

// Errors that name what the machine lacks.
var (
	ErrNoJava  = errors.New("java not found in PATH: install a Java runtime, version 17 or later")
	ErrNoMaven = errors.New("mvn not found in PATH: install Maven, which fetches the broker's jars once")
)

const (
	jarsDir     = "jars"
	archiveFile = "classes.jsa"
	log4jFile   = "log4j2.properties"
)

// distribution is the broker's software on this machine.
type distribution struct {
	dir       string
	java      string
	classpath string
	archive   string // empty when there is none
}

// locate returns the distribution, fetching it when this is the first time.
func locate(ctx context.Context) (*distribution, error) {
	java, err := exec.LookPath("java")
	if err != nil {
		return nil, ErrNoJava
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the user's cache directory: %w", err)
	}
	sum := sha256.Sum256(append(bytes.Clone(pom), log4j...))
	d := &distribution{dir: filepath.Join(cache, "weir", fmt.Sprintf("kafka-%x", sum[:6])), java: java}
	if err := os.MkdirAll(d.dir, 0o755); err != nil {
		return nil, err
	}
	unlock, err := lockFile(ctx, filepath.Join(d.dir, "lock"))
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", d.dir, err)
	}
	defer unlock()
	if err := d.fetch(ctx); err != nil {
		return nil, err
	}
	jars, err := filepath.Glob(filepath.Join(d.dir, jarsDir, "*.jar"))
	if err != nil {
		return nil, err
	}
	// The class-data archive is bound to the order of the class path.
	slices.Sort(jars)
	d.classpath = strings.Join(jars, string(os.PathListSeparator))
	return d, d.ensureArchive(ctx)
}

func (d *distribution) fetch(ctx context.Context) error {
	jars := filepath.Join(d.dir, jarsDir)
	if _, err := os.Stat(jars); err == nil {
		return nil
	}
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return ErrNoMaven
	}
	if err := os.WriteFile(filepath.Join(d.dir, log4jFile), log4j, 0o644); err != nil {
		return err
	}
	pomFile := filepath.Join(d.dir, "pom.xml")
	if err := os.WriteFile(pomFile, pom, 0o644); err != nil {
		return err
	}
	partial := jars + ".partial"
	if err := os.RemoveAll(partial); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, mvn, "-q", "-B", "-f", pomFile, "dependency:copy-dependencies", "-DoutputDirectory="+partial)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch the broker's jars with Maven: %w\n%s", err, tail(out, 20))
	}
	return os.Rename(partial, jars)
}

// ensureArchive runs the broker once to dump its classes. Without the archive a start takes seconds longer, nothing else.
func (d *distribution) ensureArchive(ctx context.Context) error {
	archive := filepath.Join(d.dir, archiveFile)
	if _, err := os.Stat(archive); err == nil {
		d.archive = archive
		return nil
	}
	partial := archive + ".partial"
	b, err := start(ctx, d, Config{jvm: []string{"-XX:ArchiveClassesAtExit=" + partial}})
	if err != nil {
		return err
	}
	b.process.StopTimeout = time.Minute // the archive is written at exit
	if err := b.Close(); err != nil {
		return err
	}
	if err := os.Rename(partial, archive); err == nil {
		d.archive = archive
	}
	return nil
}

// command returns the JVM's arguments before the main class.
func (d *distribution) command(heap string, extra []string) []string {
	args := []string{
		"-Xms" + heap, "-Xmx" + heap, "-XX:+UseSerialGC", "-Xshare:auto", "-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=" + filepath.Join(d.dir, log4jFile), "-Dlog4j2.disableJmx=true",
	}
	if d.archive != "" {
		args = append(args, "-XX:SharedArchiveFile="+d.archive, "-Xlog:cds=off", "-Xlog:class+path=off")
	}
	args = append(args, extra...)
	return append(args, "-cp", d.classpath)
}

func tail(out []byte, lines int) string {
	all := strings.Split(strings.TrimRight(string(out), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
