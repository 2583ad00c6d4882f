package clusterdoc

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/greylag/greylag/internal/config/strict"
	"github.com/greylag/greylag/pkg/cluster"
)

// without is the word for no limit.
const without = "unlimited"

// depth is a count, or "unlimited".
type depth int32

func (n *depth) Read(d *strict.Decoder, path string, value any) {
	v, isNumber := value.(int64)
	switch {
	case value == without:
		*n = cluster.Unlimited
	case !isNumber:
		d.Fault(path, `want an integer or %q, found %s`, without, strict.Describe(value))
	case v < 0 || v > math.MaxInt32:
		d.Fault(path, "%d is out of range, 0 to %d, or %q", v, math.MaxInt32, without)
	default:
		*n = depth(v)
	}
}

func (n depth) Write() any {
	if n == cluster.Unlimited {
		return without
	}
	return int64(n)
}

// horizon is a duration, or "unlimited".
type horizon time.Duration

func (h *horizon) Read(d *strict.Decoder, path string, value any) {
	if value == without {
		*h = cluster.Unlimited
		return
	}
	span := time.Duration(*h)
	d.Duration(path, value, &span)
	if span < 0 && span != time.Duration(*h) {
		d.Fault(path, "%s is negative", span)
		return
	}
	*h = horizon(span)
}

func (h horizon) Write() any {
	if h == cluster.Unlimited {
		return without
	}
	return strict.FormatDuration(time.Duration(h))
}

// override is a time of a QOS in place of that of the policy: 0 where the key is not set, and [cluster.Unlimited] for "0s".
type override time.Duration

func (o *override) Read(d *strict.Decoder, path string, value any) {
	const unread = math.MinInt64
	span := time.Duration(unread)
	d.Duration(path, value, &span)
	switch {
	case span == unread:
	case span < 0:
		d.Fault(path, "%s is negative", span)
	case span == 0:
		*o = cluster.Unlimited
	default:
		*o = override(span)
	}
}

func (o override) Write() any {
	switch o {
	case 0:
		return ""
	case cluster.Unlimited:
		return "0s"
	}
	return strict.FormatDuration(time.Duration(o))
}

// moment is a point in time with its zone, as TOML writes it, in quotes or without.
type moment cluster.Instant

func (m *moment) Read(d *strict.Decoder, path string, value any) {
	at, isTime := value.(time.Time)
	if text, isText := value.(string); isText {
		var err error
		at, err = time.Parse(time.RFC3339, text)
		isTime = err == nil
	}
	switch {
	case !isTime:
		d.Fault(path, "expected a time with its zone, such as 2026-11-21T16:00:00Z or 2026-11-21T16:00:00+01:00, found %s", strict.Describe(value))
	case at.Year() < 1971 || at.Year() > 2200: // 64 bits of nanoseconds end in 2262
		d.Fault(path, "the year %d is out of range, 1971 to 2200", at.Year())
	default:
		*m = moment(cluster.InstantOf(at))
	}
}

func (m moment) Write() any { return cluster.Instant(m).Time().UTC() }

// thousandths is a table of names with numbers of at most three decimals.
type thousandths []cluster.BillingWeight

func (t *thousandths) Read(d *strict.Decoder, path string, value any) {
	table, isTable := value.(map[string]any)
	if !isTable {
		d.Fault(path, "expected a table, found %s", strict.Describe(value))
		return
	}
	*t = nil
	for _, name := range slices.Sorted(maps.Keys(table)) {
		at := strict.Join(path, name)
		var milli float64
		switch v := table[name].(type) {
		case int64:
			milli = float64(v) * 1000
		case float64:
			milli = math.Round(v * 1000)
			if math.Abs(v*1000-milli) > 1e-6*max(1, math.Abs(milli)) {
				d.Fault(at, "%v has more than three decimals", v)
				continue
			}
		default:
			d.Fault(at, "expected a number, found %s", strict.Describe(v))
			continue
		}
		if !(milli >= 0 && milli <= cluster.MaxBilling) { // nor NaN
			d.Fault(at, "%v is out of range, 0 to %d", table[name], cluster.MaxBilling/1000)
			continue
		}
		*t = append(*t, cluster.BillingWeight{Resource: name, Milli: int64(milli)})
	}
}

func (t thousandths) Write() any {
	table := map[string]any{}
	for _, w := range t {
		if table[w.Resource] = float64(w.Milli) / 1000; w.Milli%1000 == 0 {
			table[w.Resource] = w.Milli / 1000
		}
	}
	return table
}

// counts is a table of names with integers.
type counts []cluster.Licence

func (n *counts) Read(d *strict.Decoder, path string, value any) {
	table, isTable := value.(map[string]any)
	if !isTable {
		d.Fault(path, "expected a table, found %s", strict.Describe(value))
		return
	}
	*n = nil
	for _, name := range slices.Sorted(maps.Keys(table)) {
		v, isNumber := table[name].(int64)
		switch {
		case !isNumber:
			d.Fault(strict.Join(path, name), "expected an integer, found %s", strict.Describe(table[name]))
		case v < 0 || v >= math.MaxInt32:
			d.Fault(strict.Join(path, name), "%d is out of range, 0 to %d", v, math.MaxInt32-1)
		default:
			*n = append(*n, cluster.Licence{Name: name, Count: int32(v)})
		}
	}
}

func (n counts) Write() any {
	table := map[string]any{}
	for _, l := range n {
		table[l.Name] = int64(l.Count)
	}
	return table
}
