// Package javatest fetches the jars of servers that tests run, once for a machine, with Maven.
package javatest
