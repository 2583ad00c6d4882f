package picture

import (
	"strings"
	"testing"
)

// TestScatter: values on both axes from 0 to 10, the names of strong marks only, one below the other.
func TestScatter(t *testing.T) {
	s := Scatter{Title: "t", XName: "slowdown", YName: "wait", Marks: []Mark{
		{Point{0, 0}, "a<b", false, 0}, {Point{10, 10}, "best", true, 0}, {Point{10, 10}, "same", true, 0},
	}}
	text := drawn(t, s.WriteSVG, ">slowdown<", ">wait<", `cx="70.0" cy="354.0" r="4" fill="#aaa"><title>a&lt;b</title>`,
		`<text x="698.0" y="38.0" fill="hsl(0,60%,45%)">best</text>`, `<text x="698.0" y="51.0" fill="hsl(0,60%,45%)">same</text>`)
	if strings.Contains(text, ">a&lt;b</text>") {
		t.Error("a pale mark has its name next to it")
	}
}

// TestScale: the steps are 1, 2 or 5 times a power of ten, at most ten of them.
func TestScale(t *testing.T) {
	for _, x := range []struct {
		values []float64
		want   scale
	}{
		{nil, scale{0, 1, 1}}, {[]float64{5}, scale{5, 6, 1}}, {[]float64{2.5}, scale{2, 3, 1}}, {[]float64{42, 90}, scale{40, 90, 10}},
		{[]float64{0, 10}, scale{0, 10, 2}}, {[]float64{69, 923}, scale{0, 1000, 100}},
	} {
		if got := scaleOf(x.values); got != x.want {
			t.Errorf("%v: %v, want %v", x.values, got, x.want)
		}
	}
	if got := (scale{0, 0.3, 0.1}).ticks(); len(got) != 4 || got[3] != 0.3 {
		t.Errorf("ticks %v", got)
	}
}

// TestScatterOfNothing: nothing to draw is no mistake.
func TestScatterOfNothing(t *testing.T) { drawn(t, (&Scatter{}).WriteSVG, "</svg>") }

// TestScatterOfManyNames: names at any distance from each other find a place.
func TestScatterOfManyNames(t *testing.T) {
	var s Scatter
	for i := range 200 {
		s.Marks = append(s.Marks, Mark{Point{float64(i%7) / 3, float64(i) / 1e3}, "a long name", true, 0})
	}
	if text := drawn(t, s.WriteSVG); strings.Count(text, "</text>") < 200 {
		t.Error("a name is missing")
	}
}
