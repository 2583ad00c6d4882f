package raftlog

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"
)

// Exit codes given to Config.Fatal, for the service manager and the operator.
const (
	// ExitStalled: the disk hangs or fails, or no entry is committed any more. Restart the process;
	// another member leads meanwhile.
	ExitStalled = 75
	// ExitDamaged: this member's log, snapshot or state is not what was committed. If other members
	// hold the data, the next start sets this member's aside, and it has to be added again; a lone
	// member stops until Recover.
	ExitDamaged = 76
)

// Profile holds the timeouts between members.
type Profile struct {
	Heartbeat time.Duration // a follower that receives nothing for this long starts an election
	Election  time.Duration // an election that takes longer is repeated
	Lease     time.Duration // a leader without answers from a majority for this long steps down
}

// FastLAN is the default: a lost leader is replaced in about a second (1.0 s
// median, 1.3 s at the 90th percentile with three members on one machine).
func FastLAN() Profile {
	return Profile{Heartbeat: 500 * time.Millisecond, Election: 500 * time.Millisecond, Lease: 250 * time.Millisecond}
}

// WAN suits members that are far apart or have slow disks: a lost leader is replaced in about 2.2
// s.
func WAN() Profile {
	return Profile{Heartbeat: time.Second, Election: time.Second, Lease: 500 * time.Millisecond}
}

// Config configures one member. ClusterID, Addr, Dir and Stream are required; every other field has
// a default.
type Config struct {
	// ID names the member in the cluster. If it is empty, a new Dir gets a generated ID and stores
	// it. If it is given, it must be the ID stored in Dir, or one never used before.
	ID string
	// Addr is the host:port at which peers reach Stream.
	Addr string
	// ClusterID is checked in every handshake: members of another cluster are refused.
	ClusterID string
	// Dir holds everything this member stores. One process may use it at a time.
	Dir    string
	Stream Stream

	Profile Profile          // default FastLAN
	Clock   func() time.Time // stamps entries; default time.Now
	// Wall is the clock that members compare: a leader whose wall clock is wrong transfers
	// leadership, even if Clock, which may follow gently, is not wrong yet. Default Clock.
	Wall func() time.Time
	// Retired reports whether a member ID was removed and is refused permanently; by default none
	// is. It must answer from the replicated state, without blocking.
	Retired func(id string) bool
	// Fatal ends the process: with ExitStalled or ExitDamaged and the reason. It
	// must not return; the default is os.Exit.
	Fatal  func(code int, reason string)
	Logger *slog.Logger // default slog.Default
	// Observer receives measurements; nil: none does.
	Observer Observer

	// A snapshot is taken after SnapshotThreshold entries since the last (16,384), checked every
	// SnapshotInterval (60 s, randomly up to twice that). SnapshotRetain (3) snapshots are kept,
	// and the log back to the oldest of them, so that a damaged one can be replaced by an older one
	// and the log. At least TrailingLogs (65,536) entries are kept for members that lag.
	SnapshotThreshold uint64
	SnapshotInterval  time.Duration
	SnapshotRetain    int
	TrailingLogs      uint64

	// ReserveBytes of disk space are reserved for the entries that end jobs when the disk is full
	// (64 MiB). Negative: none.
	ReserveBytes int64
	// CheckInterval is how often a leader compares clocks and state digests with
	// its peers (10 s).
	CheckInterval time.Duration
	// StallLimit is how long one write to the log may take before the process is
	// ended with ExitStalled (3 s).
	StallLimit time.Duration
}

// ErrConfig is returned by Open when the configuration cannot work.
var ErrConfig = errors.New("raftlog: configuration is not usable")

func (c Config) withDefaults() Config {
	if c.Profile == (Profile{}) {
		c.Profile = FastLAN()
	}
	if c.Clock == nil {
		c.Clock = time.Now
	}
	if c.Wall == nil {
		c.Wall = c.Clock
	}
	if c.Fatal == nil {
		c.Fatal = func(code int, _ string) { os.Exit(code) }
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	if c.Observer == nil {
		c.Observer = unobserved{}
	}
	setDefault(&c.SnapshotThreshold, 16384)
	setDefault(&c.SnapshotInterval, 60*time.Second)
	setDefault(&c.SnapshotRetain, 3)
	setDefault(&c.TrailingLogs, 65536)
	setDefault(&c.ReserveBytes, 64<<20)
	setDefault(&c.CheckInterval, 10*time.Second)
	setDefault(&c.StallLimit, 3*time.Second)
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// check reports every error of the configuration at once.
func (c Config) check() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.ClusterID == "" || len(c.ClusterID) > maxName {
		fault("cluster ID %q must have 1 to %d bytes", c.ClusterID, maxName)
	}
	if err := checkAddr(c.Addr); err != nil {
		faults = append(faults, err)
	}
	if c.ID != "" {
		if err := checkID(c.ID); err != nil {
			faults = append(faults, err)
		}
	}
	if c.Dir == "" {
		fault("no data directory given")
	}
	if c.Stream == nil {
		fault("no stream given")
	}
	if c.Profile.Lease > c.Profile.Heartbeat || c.Profile.Heartbeat > c.Profile.Election {
		fault("profile %+v: lease ≤ heartbeat ≤ election does not hold", c.Profile)
	}
	if len(faults) > 0 {
		return fmt.Errorf("%w: %w", ErrConfig, errors.Join(faults...))
	}
	return nil
}

// checkID keeps IDs printable and free of the two separators of a target (mux.go).
func checkID(id string) error {
	if id == "" || len(id) > maxName {
		return fmt.Errorf("member ID %q must have 1 to %d bytes", id, maxName)
	}
	for _, r := range id {
		if r <= ' ' || r > '~' || r == '@' || r == '#' {
			return fmt.Errorf("member ID %q: character %q is not allowed", id, r)
		}
	}
	return nil
}

func checkAddr(addr string) error {
	if addr == "" || len(addr) > 255 || strings.ContainsAny(addr, "#@ ") {
		return fmt.Errorf("member address %q is not host:port", addr)
	}
	return nil
}
