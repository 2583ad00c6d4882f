// Package picture draws, as SVG: jobs as bars over time with the part of the machine
// that they use, and quantities against a size on logarithmic axes.
//
// It decides where on the paper a value lies and what is too small to be seen, from
// the values it is given. It never decides what is drawn, and the size of a picture of
// jobs is bounded whatever their number.
package picture
