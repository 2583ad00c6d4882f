package config

import (
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// Archive limits what a controller keeps of finished jobs besides their records.
type Archive struct {
	ScriptsKeep time.Duration `toml:"scripts_keep"` // since no job needs a script or environment; 0: permanently
	ScriptsSize cluster.Bytes `toml:"scripts_size"` // of all scripts and environments; 0: no limit
}

// Limits limit the requests of one user to a controller.
type Limits struct {
	Requests    int           `toml:"requests"`                    // per second
	Burst       int           `toml:"burst"`                       // at once
	Streams     int           `toml:"streams"`                     // open at the same time: watches, logs
	ReadTimeout time.Duration `toml:"read_timeout" was:"patience"` // how long a request may take to arrive
}

func defaultArchive() Archive {
	return Archive{ScriptsKeep: 365 * 24 * time.Hour, ScriptsSize: 10 * cluster.GiB}
}

func defaultLimits() Limits {
	return Limits{Requests: 500, Burst: 2000, Streams: 128, ReadTimeout: 30 * time.Second}
}

func (a *Archive) check(c *checker) {
	if a.ScriptsKeep != 0 {
		c.AtLeast("archive.scripts_keep", a.ScriptsKeep, time.Hour)
	}
	if a.ScriptsSize != 0 && (a.ScriptsSize < cluster.MiB || a.ScriptsSize > 1024*cluster.TiB) {
		c.Fault("archive.scripts_size", "%v is out of range, 1M to 1024T, or 0 for no limit", a.ScriptsSize)
	}
}

func (l *Limits) check(c *checker) {
	c.Between("limits.requests", l.Requests, 1, 1_000_000)
	c.Between("limits.burst", l.Burst, 1, 10_000_000)
	c.Between("limits.streams", l.Streams, 1, 100_000)
	c.AtLeast("limits.read_timeout", l.ReadTimeout, time.Second)
}
