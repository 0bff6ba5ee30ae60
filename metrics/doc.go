// Package metrics is every series that a hub shows to Prometheus: its name, help and labels. It is a leaf. Nothing is
// counted here: components keep their own figures, and a [Reader] hands a reading of them over at each scrape.
package metrics
