package picture

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/greylag/greylag/pkg/cluster"
)

// drawn is a picture, which is well-formed and has each of some parts once.
func drawn(t *testing.T, write func(io.Writer) error, parts ...string) string {
	t.Helper()
	var b strings.Builder
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	d := xml.NewDecoder(strings.NewReader(b.String()))
	for {
		_, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("%v in\n%s", err, b.String())
		}
	}
	for _, p := range parts {
		if strings.Count(b.String(), p) != 1 {
			t.Errorf("not once %q in\n%s", p, b.String())
		}
	}
	return b.String()
}

func at(seconds int) cluster.Instant { return cluster.Instant(time.Duration(seconds) * time.Second) }

// TestJobs: 1,200 s on 1,200 pixels, two lanes of 24 pixels each.
func TestJobs(t *testing.T) {
	j := Jobs{Title: "a <b> & c", Unit: "GPUs", Usage: "in use", To: at(1200), Lanes: 2, Capacity: 2, Bars: []Bar{
		{From: at(0), To: at(600), First: 0, Last: 1, Hue: 0},
		{From: at(300), To: at(1200), First: 1, Last: 2, Hue: 0, Pale: true},
	}}
	text := drawn(t, j.WriteSVG, "a &lt;b> &amp; c",
		`fill="hsl(0,60%,45%)" d="M70 34h600v24h-600z"`,
		`fill="hsl(0,60%,72%)" d="M370 58h900v24h-900z"`,
		">2 GPUs<", ">in use<", ">10:00<")
	// Half of the machine until 300 s, all of it until 600 s, half of it then.
	for _, step := range []string{"L369 172.0L370 112.0", "L669 112.0L670 172.0"} {
		if !strings.Contains(text, step) {
			t.Errorf("no %q in\n%s", step, text)
		}
	}
}

// TestJobsWithoutAny: nothing to draw is no mistake.
func TestJobsWithoutAny(t *testing.T) {
	drawn(t, (&Jobs{}).WriteSVG, "</svg>")
	drawn(t, (&Growth{}).WriteSVG, "</svg>")
	drawn(t, (&Growth{Figure: "%g", Lines: []Line{{"none", []Point{{1, 0}, {-1, 2}}}, {"one", []Point{{5, 5}}}}}).WriteSVG, ">one<", ">5<")
}

// TestGrowth: from 1 to 100 the value grows as the square root, from 1 to 10.
func TestGrowth(t *testing.T) {
	g := Growth{Title: "t", XName: "nodes", YName: "time", Figure: "%g ms", Lines: []Line{{"full", []Point{{1, 1}, {100, 10}}}}}
	text := drawn(t, g.WriteSVG, ">nodes<", ">time<", ">full<", ">1 ms<", ">10 ms<", ">100<",
		`stroke-width="2" stroke="hsl(0,60%,45%)" d="M84.5 354.0L675.5 34.0"`,
		// What grows in proportion leaves the paper half way.
		`stroke-dasharray="1 4" d="M84.5 354.0L380.0 34.0"`)
	if strings.Contains(text, ">100 ms<") {
		t.Error("the axis is longer than the values")
	}
}
