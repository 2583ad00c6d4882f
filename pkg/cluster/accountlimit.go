package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ErrBadLimit is returned for a malformed limit, and wrapped by every error about one.
var ErrBadLimit = errors.New("not a limit")

// LimitKind is the quantity that a limit bounds.
type LimitKind uint8

// The kinds, named as sacctmgr names them. Grp: of all jobs of an account and its descendants, of a
// user, or of a QOS together. Max: of one job, or with Jobs of one user of the account. TRESMins
// and Wall are used up and decay with the half-life of fair share; TRESRunMins is what running jobs
// may still use until their time limits.
const (
	GrpTRES LimitKind = iota + 1
	GrpJobs
	GrpSubmitJobs
	GrpWall
	GrpTRESMins
	GrpTRESRunMins
	MaxTRESPerJob
	MaxJobs
	MaxSubmitJobs
	MaxWall
	MaxTRESMinsPerJob
	MaxJobsPerUser          // this and the following are for a QOS only
	MaxJobsPerAccount       //
	MaxSubmitJobsPerUser    //
	MaxSubmitJobsPerAccount //
	MaxTRESPerUser          //
	MaxTRESPerAccount       //
	MaxTRESPerNode          // of one job on each of its nodes
	MinTRESPerJob           // for a QOS only: the least that a job must request
	maxLimitKind            = MinTRESPerJob
)

// unit is the unit of a limit's value.
type unit uint8

const (
	jobsUnit    unit = iota // jobs
	secondsUnit             // seconds
	tresUnit                // of one resource
	minutesUnit             // of one resource, times minutes
)

var limitKinds = [...]struct {
	name string
	unit unit
	qos  int8 // 1: of a QOS only; -1: of accounts and users only; 0: of both
}{
	GrpTRES: {"GrpTRES", tresUnit, 0}, GrpJobs: {"GrpJobs", jobsUnit, 0}, GrpSubmitJobs: {"GrpSubmitJobs", jobsUnit, 0},
	GrpWall: {"GrpWall", secondsUnit, -1}, GrpTRESMins: {"GrpTRESMins", minutesUnit, -1}, GrpTRESRunMins: {"GrpTRESRunMins", minutesUnit, 0},
	MaxTRESPerJob: {"MaxTRESPerJob", tresUnit, 0}, MaxJobs: {"MaxJobs", jobsUnit, -1}, MaxSubmitJobs: {"MaxSubmitJobs", jobsUnit, -1},
	MaxWall: {"MaxWall", secondsUnit, -1}, MaxTRESMinsPerJob: {"MaxTRESMinsPerJob", minutesUnit, 0},
	MaxJobsPerUser: {"MaxJobsPerUser", jobsUnit, 1}, MaxJobsPerAccount: {"MaxJobsPerAccount", jobsUnit, 1},
	MaxSubmitJobsPerUser: {"MaxSubmitJobsPerUser", jobsUnit, 1}, MaxSubmitJobsPerAccount: {"MaxSubmitJobsPerAccount", jobsUnit, 1},
	MaxTRESPerUser: {"MaxTRESPerUser", tresUnit, 1}, MaxTRESPerAccount: {"MaxTRESPerAccount", tresUnit, 1},
	MaxTRESPerNode: {"MaxTRESPerNode", tresUnit, 0}, MinTRESPerJob: {"MinTRESPerJob", tresUnit, 1},
}

// limitWords are sacctmgr's synonyms for kinds, and for kinds on one resource.
var limitWords = [...]struct {
	word     string
	kind     LimitKind
	resource string
}{
	{"GrpSubmit", GrpSubmitJobs, ""}, {"MaxSubmit", MaxSubmitJobs, ""}, {"MaxWallDurationPerJob", MaxWall, ""},
	{"MaxTRES", MaxTRESPerJob, ""}, {"MaxTRESMins", MaxTRESMinsPerJob, ""},
	{"GrpCPUs", GrpTRES, ResourceCPU}, {"GrpMemory", GrpTRES, ResourceMem}, {"GrpMem", GrpTRES, ResourceMem}, {"GrpNodes", GrpTRES, ResourceNode},
	{"GrpCPUMins", GrpTRESMins, ResourceCPU}, {"GrpCPURunMins", GrpTRESRunMins, ResourceCPU},
	{"MaxCPUs", MaxTRESPerJob, ResourceCPU}, {"MaxCPUsPerJob", MaxTRESPerJob, ResourceCPU}, {"MaxNodes", MaxTRESPerJob, ResourceNode},
	{"MaxNodesPerJob", MaxTRESPerJob, ResourceNode}, {"MaxCPUMins", MaxTRESMinsPerJob, ResourceCPU}, {"MaxCPUMinsPerJob", MaxTRESMinsPerJob, ResourceCPU},
	{"MaxJobsPU", MaxJobsPerUser, ""}, {"MaxJobsPA", MaxJobsPerAccount, ""}, {"MaxSubmitPU", MaxSubmitJobsPerUser, ""}, {"MaxSubmitPA", MaxSubmitJobsPerAccount, ""},
	{"MaxTRESPU", MaxTRESPerUser, ""}, {"MaxTRESPA", MaxTRESPerAccount, ""}, {"MaxTRESPN", MaxTRESPerNode, ""},
	{"MaxTRESPJ", MaxTRESPerJob, ""}, {"MinTRES", MinTRESPerJob, ""}, {"MinTRESPJ", MinTRESPerJob, ""}, {"MinCPUs", MinTRESPerJob, ResourceCPU},
}

// ParseLimitKind reads the name of a kind or a synonym of sacctmgr, in any case. A synonym such as
// GrpNodes is on one resource, which is returned as well.
func ParseLimitKind(word string) (kind LimitKind, resource string, known bool) {
	for k := range limitKinds {
		if k > 0 && equalFold(limitKinds[k].name, word) {
			return LimitKind(k), "", true
		}
	}
	for _, w := range limitWords {
		if equalFold(w.word, word) {
			return w.kind, w.resource, true
		}
	}
	return 0, "", false
}

// String returns sacctmgr's word.
func (k LimitKind) String() string {
	if k == 0 || k > maxLimitKind {
		return "?"
	}
	return limitKinds[k].name
}

// Form returns the first form of the credit journal in which all members know the kind.
func (k LimitKind) Form() uint8 { return 1 }

// OfResource reports whether limits of the kind are on one resource each.
func (k LimitKind) OfResource() bool { return limitKinds[k].unit >= tresUnit }

// Limit is one bound. Without a limit of a kind the amount is unlimited; 0 allows none.
type Limit struct {
	Kind     LimitKind
	Resource string // "" unless Kind.OfResource
	Value    int64  // jobs, seconds, units of the resource, or unit-minutes
}

// maxLimitValue keeps sums and products of limits far from overflow.
const maxLimitValue = 1 << 50

// SortLimits returns the limits sorted by kind and resource; of duplicates the last one stays.
func SortLimits(limits []Limit) []Limit {
	if len(limits) == 0 {
		return nil
	}
	out := slices.Clone(limits)
	slices.SortStableFunc(out, compareLimits)
	n := 0
	for i := range out {
		if i+1 < len(out) && compareLimits(out[i], out[i+1]) == 0 {
			continue
		}
		out[n] = out[i]
		n++
	}
	return out[:n]
}

func compareLimits(a, b Limit) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), strings.Compare(a.Resource, b.Resource))
}

// LimitOf finds a limit in a sorted list.
func LimitOf(limits []Limit, kind LimitKind, resource string) (Limit, bool) {
	i, found := slices.BinarySearchFunc(limits, Limit{Kind: kind, Resource: resource}, compareLimits)
	if !found {
		return Limit{}, false
	}
	return limits[i], true
}

// checkLimits checks the sorted limits of a QOS, an account or a user.
func checkLimits(fault func(string, ...any), limits []Limit, qos bool) {
	if len(limits) > maxOfAccount {
		fault("%d limits, at most %d", len(limits), maxOfAccount)
	}
	for _, l := range limits {
		if l.Kind == 0 || l.Kind > maxLimitKind {
			fault("unknown kind of limit %d", l.Kind)
			continue
		}
		switch only := limitKinds[l.Kind].qos; {
		case only > 0 && !qos:
			fault("%s is a limit of a qos, not of an account or a user", l.Kind)
		case only < 0 && qos:
			fault("%s is a limit of an account or a user, not of a qos", l.Kind)
		}
		if l.Kind.OfResource() {
			if name, err := ParseResource(l.Resource); err != nil || name != l.Resource {
				fault("%s: %q is no resource", l.Kind, l.Resource)
			} else if l.Kind == MaxTRESPerNode && !onNode(l.Resource) {
				fault("%s is on gpu, gpu:TYPE, cpu or mem, not on %s", l.Kind, l.Resource)
			}
		} else if l.Resource != "" {
			fault("%s is not on a resource", l.Kind)
		}
		if l.Value < 0 || l.Value > maxLimitValue {
			fault("%s: %d is out of range", l.Kind, l.Value)
		}
	}
}

// String returns the form that [ParseLimits] reads.
func (l Limit) String() string {
	if l.Kind.OfResource() {
		return l.Kind.String() + "=" + l.Resource + "=" + l.Amount(l.Value)
	}
	return l.Kind.String() + "=" + l.Amount(l.Value)
}

// Amount formats a quantity that the limit bounds: a time, a size, or a number.
func (l Limit) Amount(n int64) string {
	switch {
	case limitKinds[l.Kind].unit == secondsUnit:
		return FormatElapsed(time.Duration(n) * time.Second)
	case limitKinds[l.Kind].unit == tresUnit && l.Resource == ResourceMem:
		return (Bytes(n) * MiB).String()
	}
	return strconv.FormatInt(n, 10)
}

// ParseLimits reads "KIND=VALUE", and for limits on resources
// "KIND=RESOURCE=VALUE[,RESOURCE=VALUE...]", as sacctmgr does. A value of -1 removes the limit: it
// is then in gone. known reports whether the first word is a kind.
func ParseLimits(text string) (set, gone []Limit, known bool, err error) {
	word, rest, _ := strings.Cut(text, "=")
	kind, resource, known := ParseLimitKind(word)
	switch {
	case !known:
		return nil, nil, false, fmt.Errorf("%w: %q", ErrBadLimit, word)
	case resource != "" || !kind.OfResource():
		set, gone, err = kind.parse(resource, rest)
		return set, gone, true, err
	}
	for _, part := range strings.Split(rest, ",") {
		name, value, ok := strings.Cut(part, "=")
		if !ok {
			return nil, nil, true, fmt.Errorf("%w: %q (want %s=gpu=8,cpu=64)", ErrBadLimit, text, kind)
		}
		resource, err := ParseResource(name)
		if err != nil {
			return nil, nil, true, err
		}
		s, g, err := kind.parse(resource, value)
		if err != nil {
			return nil, nil, true, err
		}
		set, gone = append(set, s...), append(gone, g...)
	}
	return set, gone, true, nil
}

// parse reads one value.
func (k LimitKind) parse(resource, value string) (set, gone []Limit, err error) {
	l := Limit{Kind: k, Resource: resource}
	if value == "" { // of an unset variable: the limit would be removed
		return nil, nil, fmt.Errorf("%w: %s has no value (is the shell variable set? -1 removes a limit)", ErrBadLimit, strings.TrimSuffix(k.String()+"="+resource, "="))
	}
	if value == "-1" || equalFold(value, "UNLIMITED") || equalFold(value, "INFINITE") {
		return nil, []Limit{l}, nil
	}
	switch {
	case limitKinds[k].unit == secondsUnit:
		var d time.Duration
		d, err = ParseLimit(value)
		l.Value = int64(d / time.Second)
	case limitKinds[k].unit == tresUnit && resource == ResourceMem:
		var b Bytes
		b, err = ParseBytes(value, MiB)
		l.Value = mib(b)
	default:
		if l.Value, err = strconv.ParseInt(value, 10, 64); err != nil || l.Value < 0 || l.Value > maxLimitValue {
			err = fmt.Errorf("%w: %s=%q (want a number from 0 to %d, or -1 for no limit)", ErrBadLimit, k, value, int64(maxLimitValue))
		}
	}
	if err != nil {
		return nil, nil, err
	}
	return []Limit{l}, nil, nil
}
