"""Everyday memories, and questions that share no content word with the memory that answers them.

Written and committed before anything was run on them. They are a measure, so they are never changed to suit the
ranking.
"""

from __future__ import annotations

from typing import Final

ASKED: Final = (
    ("Alice owns the billing service.", "Who is responsible for payments?"),
    ("The car needs new brake pads before winter.", "Which vehicle repair is due soon?"),
    ("Tom is allergic to peanuts and shellfish.", "Which foods make him ill?"),
    ("Deploys to production happen on Tuesdays after ten.", "On what weekday do we release software?"),
    ("The physician prescribed ibuprofen for the sore knee.", "What medicine did the doctor give me for joint pain?"),
    ("Our cat Minka sleeps in the laundry basket.", "Where does the kitten take its naps?"),
    ("The landlord raised the rent to 950 euros.", "How much do we pay for the apartment each month?"),
    ("Flight to Lisbon leaves at 6:40 from terminal 2.", "What time does the plane to Portugal take off?"),
    ("Lena wants a telescope for Christmas.", "What present would my daughter like for the holidays?"),
    ("We picked PostgreSQL over MySQL because of its extensions.", "Why did we choose that database?"),
    ("The wifi password is taped under the router.", "Where do I find the credentials for the internet?"),
    ("Paul speaks fluent Italian and some Greek.", "Which foreign languages does he know?"),
    ("The dentist appointment moved to Thursday at noon.", "When do I get my teeth checked?"),
    ("Maria got promoted to head of sales.", "Who became the new commercial manager?"),
    ("I prefer window seats on long trains.", "Where do I like to sit when travelling by rail?"),
    ("Unit tests run in the pipeline on every push.", "When does continuous integration check the code?"),
    ("The spare key hangs in the neighbour's garage.", "How can I get in if I am locked out of the house?"),
    ("Ben broke his arm while skiing in Austria.", "Which injury did my brother suffer on the slopes?"),
    (
        "Dinner with the in-laws is at the Thai place on Friday.",
        "At which restaurant do we eat with my wife's parents?",
    ),
    ("The roof leaks above the guest bedroom.", "Which part of the house lets rain water in?"),
    ("Nadia quit her job to study law.", "Who left her career to become an attorney?"),
    ("Customers complain that the app drains the battery.", "What do users dislike about our mobile software?"),
    ("The kids' swimming lessons cost 80 euros per term.", "What is the price of the children's pool course?"),
    ("Our dog is afraid of thunder.", "What scares the puppy?"),
    ("Olive oil and tomatoes are nearly used up.", "Which groceries should I buy?"),
    ("Grandpa served as a sailor before he opened the bakery.", "What was my grandfather's profession in his youth?"),
    ("The backup of the server runs every night at two.", "How often is a copy of the data saved?"),
    ("I run five kilometres along the river each morning.", "What exercise do I do at dawn?"),
    ("The couple next door had a baby girl named Ida.", "What is the newborn called?"),
    ("Uncle Karl left me his watch collection.", "What did I inherit from a relative?"),
)
"""(the memory, the question that it answers)"""

OTHERS: Final = (
    "The garden hose is stored behind the shed.",
    "Sara plays the violin in the city orchestra.",
    "The passport expires in August next year.",
    "Code reviews need two approvals before merging.",
    "We watched the documentary about octopuses twice.",
    "The blue sofa was delivered with a torn cushion.",
    "Marek collects stamps from the Baltic states.",
    "The meeting room on the third floor has no projector.",
    "Grandma bakes plum cake every September.",
    "The electricity meter reads 48210 in the basement.",
    "Jonas finished his thesis on medieval bridges.",
    "The staging environment uses yesterday's snapshot.",
    "Our wedding photos are in the wooden chest.",
    "The recycling truck comes on alternate Wednesdays.",
    "Ella is reading a novel about Antarctica.",
    "The bicycle tyre pressure should be four bar.",
    "Feature flags are kept in a separate repository.",
    "The mountain hut has room for twelve people.",
    "Mum's favourite flowers are white tulips.",
    "The insurance covers theft but not floods.",
    "Oskar learned to tie his shoes yesterday.",
    "The printer jams when the paper is thick.",
    "Basil grows best on the kitchen sill.",
    "The choir rehearses in the old chapel on Mondays.",
    "Invoices are archived for ten years.",
    "The new colleague from Oslo starts in April.",
    "Yoga class was cancelled because of the holiday.",
    "The library charges ten cents for a late book.",
    "Peter painted the fence dark green.",
    "The museum is free on the first Sunday of the month.",
)
"""Memories that nobody asks for."""
