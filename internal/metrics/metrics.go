// Package metrics serves the metrics and the health of a daemon in Prometheus' formats.
//
// It owns Prometheus' client library. Package controllers has the metrics of controllers, package
// nodes those of nodes. Values of a daemon are read when they are requested; only what happens
// between two requests is counted meanwhile.
package metrics

import (
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/sync/singleflight"

	"github.com/greylag/greylag/internal/config"
	"github.com/greylag/greylag/internal/version"
)

const (
	// maxScrapes is the number of scrapes that are answered at one time; others get 503.
	maxScrapes = 8
	// scrapeTimeout is how long a scrape may take.
	scrapeTimeout = 10 * time.Second
	// freshTime is how long a result serves further scrapes.
	freshTime = time.Second
)

// Registry holds the metrics of one daemon.
type Registry struct{ *prometheus.Registry }

// NewRegistry returns a registry with the metrics that every daemon has: its version, its process
// and the Go runtime.
func NewRegistry() Registry {
	r := NewFileRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// NewFileRegistry returns a registry for a file of node_exporter, which has metrics of its own process
// and Go runtime.
func NewFileRegistry() Registry {
	r := Registry{prometheus.NewRegistry()}
	build := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "greylag_build_info", Help: "Version of the daemon; always 1.", ConstLabels: prometheus.Labels{"version": version.Version},
	})
	build.Set(1)
	r.MustRegister(build)
	return r
}

// Handler serves the metrics. Scrapes within a second share one result.
func (r Registry) Handler() http.Handler {
	return promhttp.HandlerFor(&shared{of: r}, promhttp.HandlerOpts{MaxRequestsInFlight: maxScrapes, Timeout: scrapeTimeout})
}

// WriteFile writes the metrics to a file for the textfile collector of node_exporter, which reads
// either the former file or the whole new one. The directory may belong to another user: no file is
// opened or changed by its name.
func (r Registry) WriteFile(path string) error {
	families, err := r.Gather()
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, family := range families {
		if _, err := expfmt.MetricFamilyToText(&text, family); err != nil {
			return err
		}
	}
	return config.WriteFile(path, text.String())
}

// shared gathers once for all callers at one time, and at most once in freshTime: any host may scrape.
type shared struct {
	of    prometheus.Gatherer
	group singleflight.Group

	// In the group only.
	at   time.Time
	last []*dto.MetricFamily
}

// Gather implements prometheus.Gatherer.
func (s *shared) Gather() ([]*dto.MetricFamily, error) {
	families, err, _ := s.group.Do("", func() (any, error) {
		if time.Since(s.at) < freshTime {
			return s.last, nil
		}
		all, err := s.of.Gather()
		if err == nil {
			s.at, s.last = time.Now(), all
		}
		return all, err
	})
	return families.([]*dto.MetricFamily), err
}

// Family is a metric whose values are read at each scrape.
type Family struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// Families lists the metrics of a collector.
type Families []*Family

// Gauge adds a gauge.
func (f *Families) Gauge(name, help string, labels ...string) *Family {
	return f.add(name, help, prometheus.GaugeValue, labels)
}

// Counter adds a counter.
func (f *Families) Counter(name, help string, labels ...string) *Family {
	return f.add(name, help, prometheus.CounterValue, labels)
}

// Histogram adds a histogram.
func (f *Families) Histogram(name, help string, labels ...string) *Family {
	return f.add(name, help, prometheus.UntypedValue, labels)
}

func (f *Families) add(name, help string, kind prometheus.ValueType, labels []string) *Family {
	x := &Family{prometheus.NewDesc(name, help, labels, nil), kind}
	*f = append(*f, x)
	return x
}

// Describe sends the descriptions.
func (f Families) Describe(out chan<- *prometheus.Desc) {
	for _, x := range f {
		out <- x.desc
	}
}

// Sink receives the values of one scrape.
type Sink chan<- prometheus.Metric

// Put adds a value.
func (s Sink) Put(f *Family, value float64, labels ...string) {
	s <- prometheus.MustNewConstMetric(f.desc, f.kind, value, labels...)
}

// PutBool adds 1 or 0.
func (s Sink) PutBool(f *Family, value bool, labels ...string) {
	n := 0.0
	if value {
		n = 1
	}
	s.Put(f, n, labels...)
}

// PutTime adds an instant in seconds since 1970, unless it is not set.
func (s Sink) PutTime(f *Family, at time.Time, labels ...string) {
	if !at.IsZero() {
		s.Put(f, float64(at.UnixNano())/1e9, labels...)
	}
}

// PutDurations adds a histogram: the number of observations up to each bound in seconds, of all,
// and their sum.
func (s Sink) PutDurations(f *Family, upTo map[float64]uint64, count uint64, sum float64, labels ...string) {
	s <- prometheus.MustNewConstHistogram(f.desc, count, sum, upTo, labels...)
}
