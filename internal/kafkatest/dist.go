package kafkatest

import (
	"bytes"
	"context"
	_ "embed"
	"os"
	"path/filepath"
	"time"

	"github.com/weir-stream/weir/internal/javatest"
)

//go:embed pom.xml
var pom []byte

// Version returns the version of Apache Kafka that Start runs.
func Version() string {
	_, rest, _ := bytes.Cut(pom, []byte("<artifactId>kafka_2.13</artifactId>"))
	_, rest, _ = bytes.Cut(rest, []byte("<version>"))
	version, _, _ := bytes.Cut(rest, []byte("</version>"))
	return string(version)
}

//go:embed log4j2.properties
var log4j []byte

// Errors that name what the machine lacks.
var (
	ErrNoJava  = javatest.ErrNoJava
	ErrNoMaven = javatest.ErrNoMaven
)

const (
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
	d := &distribution{}
	_, err := javatest.Locate(ctx, "kafka", pom, map[string][]byte{log4jFile: log4j}, func(ctx context.Context, j *javatest.Jars) error {
		d.dir, d.java, d.classpath = j.Dir, j.Java, j.Classpath
		return d.ensureArchive(ctx)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
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
