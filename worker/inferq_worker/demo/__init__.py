"""The demo's model and its input: handwritten digits, held out from training.

``examples/digits`` trained the weights. The images are from "Optical Recognition of Handwritten
Digits" by E. Alpaydin and C. Kaynak, UCI Machine Learning Repository, CC BY 4.0, via scikit-learn.
"""
