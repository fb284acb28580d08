package kafkatest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// tools are the main classes of Kafka's own command-line tools, by the names that its distribution gives them.
var tools = map[string]string{
	"kafka-configs.sh":          "org.apache.kafka.tools.ConfigCommand",
	"kafka-console-consumer.sh": "org.apache.kafka.tools.consumer.ConsoleConsumer",
	"kafka-console-producer.sh": "org.apache.kafka.tools.ConsoleProducer",
	"kafka-consumer-groups.sh":  "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
	"kafka-get-offsets.sh":      "org.apache.kafka.tools.GetOffsetShell",
	"kafka-topics.sh":           "org.apache.kafka.tools.TopicCommand",
	"kafka-transactions.sh":     "org.apache.kafka.tools.TransactionsCommand",
}

// WriteTools writes scripts that run Kafka's command-line tools of the broker's version into a directory.
func (b *Broker) WriteTools(dir string) error {
	if b.dist == nil {
		return errForeign
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	logging := filepath.Join(dir, "log4j2.properties")
	if err := os.WriteFile(logging, []byte("status = error\nrootLogger.level = off\n"), 0o644); err != nil { //nolint:gosec // everybody may read it
		return err
	}
	for name, class := range tools {
		words := []string{
			"exec", b.dist.java, "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1",
			"-Dlog4j2.configurationFile=" + logging, "-Dlog4j2.disableJmx=true", "-cp", b.dist.classpath, class,
		}
		for i, w := range words {
			words[i] = "'" + strings.ReplaceAll(w, "'", `'\''`) + "'"
		}
		script := fmt.Sprintf("#!/bin/sh\n%s \"$@\"\n", strings.Join(words, " "))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil { //nolint:gosec // scripts are for everybody
			return err
		}
	}
	return nil
}
