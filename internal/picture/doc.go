// Package picture draws SVG: jobs as bars over time with the used part of the machine, quantities
// against a size on logarithmic axes, and named values on linear axes.
//
// It decides the position of each value and what is too small to be visible. It never decides what
// is drawn. The size of a picture of jobs is bounded whatever their number.
package picture
